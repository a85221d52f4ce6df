# Reads five files from the beginning to the end, each by a thread, past the page cache (O_DIRECT).
set $dir=/tmp
set $nthreads=1
set $iosize=1m
set $filesize=256m
define file name=largefile1,path=$dir,size=$filesize,prealloc,reuse,paralloc
define file name=largefile2,path=$dir,size=$filesize,prealloc,reuse,paralloc
define file name=largefile3,path=$dir,size=$filesize,prealloc,reuse,paralloc
define file name=largefile4,path=$dir,size=$filesize,prealloc,reuse,paralloc
define file name=largefile5,path=$dir,size=$filesize,prealloc,reuse,paralloc
define process name=streams1,instances=1 {
  thread name=stream1,memsize=10m,instances=$nthreads {
    flowop read name=seqread1,filesetname=largefile1,iosize=$iosize,directio
  }
  thread name=stream2,memsize=10m,instances=$nthreads {
    flowop read name=seqread2,filesetname=largefile2,iosize=$iosize,directio
  }
  thread name=stream3,memsize=10m,instances=$nthreads {
    flowop read name=seqread3,filesetname=largefile3,iosize=$iosize,directio
  }
  thread name=stream4,memsize=10m,instances=$nthreads {
    flowop read name=seqread4,filesetname=largefile4,iosize=$iosize,directio
  }
  thread name=stream5,memsize=10m,instances=$nthreads {
    flowop read name=seqread5,filesetname=largefile5,iosize=$iosize,directio
  }
}
run 60

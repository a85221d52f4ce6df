# Reads one file from the beginning to the end.
set $dir=/tmp
set $nthreads=1
set $iosize=1m
set $filesize=256m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop read name=seqread1,filesetname=bigfileset,iosize=$iosize
  }
}
run 60

# Reads at random places of one file.
set $dir=/tmp
set $nthreads=1
set $iosize=2k
set $filesize=256m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop read name=rread1,filesetname=bigfileset,iosize=$iosize,random
  }
}
run 60

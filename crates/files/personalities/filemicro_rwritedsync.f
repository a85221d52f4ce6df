# Writes at random places of one file, each write into safety (O_DSYNC).
set $dir=/tmp
set $nthreads=1
set $iosize=2k
set $filesize=256m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc
define process name=micro,instances=1 {
  thread name=micro,memsize=10m,instances=$nthreads {
    flowop write name=rwrite,filesetname=bigfileset,iosize=$iosize,random,dsync
  }
}
run 60
